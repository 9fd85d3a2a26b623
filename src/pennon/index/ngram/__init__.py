"""N-gram indices: which rows hold which three letters or digits in sequence."""
