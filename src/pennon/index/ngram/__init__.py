"""N-gram indices: the rows that contain each sequence of three letters or digits."""
