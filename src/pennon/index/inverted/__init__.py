"""The inverted index: words of documents, and in which documents they are."""
