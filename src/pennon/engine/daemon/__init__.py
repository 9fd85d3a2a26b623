"""Not imported: the folder goes on the path of Spark's workers, where its module is called by name."""
