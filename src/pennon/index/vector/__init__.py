"""Vector indices: a clustering (IVF), a sub-index over each partition (FLAT or HNSW) and a quantizer of its vectors."""
