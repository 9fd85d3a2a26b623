"""k-means: `training` in one process, or its steps on parts of the points.

Distributed training sends the centroids to every task, adds up the `partials` of the blocks and computes the `updated`
centroids, starting with those of a `hierarchical_start`. `train_kmeans` does all of this in one process.

A point's distance is the squared one to the nearest centroid. Spherical k-means is over directions: centroids have
length 1, and a point's distance is its length minus its inner product with the centroid.
"""
