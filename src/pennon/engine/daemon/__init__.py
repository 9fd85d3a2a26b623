"""Not imported: the folder is put on the path of Spark's workers, which import its module by name."""
