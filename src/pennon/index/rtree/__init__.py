"""R-trees: the boxes around geometries."""
