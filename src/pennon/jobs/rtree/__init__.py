"""R-trees: built, merged and audited."""
