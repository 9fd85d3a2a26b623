"""Posting lists: the documents of each term, how often it is in them, and where.

A list is cut into blocks of 128 postings, the last one shorter. Documents ascend.

    full   f32 highest score | u32 first document | u8 w | 16 w bytes of differences | u8 w | 16 w bytes of frequencies
    last   f32 highest score | varint first document, varint differences | varint frequencies

Packed numbers are 128 of w bits each: number i is in lane i mod 4, a lane is 32 numbers with the lowest bit first in w
little-endian words of 32 bits, and word k of lane l is the (4 k + l)-th of all.

Impacts bound the scores of each block, then of each 32 blocks: varint last document, varint pairs, the pairs. A pair is
a frequency and the length of the shortest document that has a term so often, of those that no other pair outdoes;
ascending, lengths as codes of a byte: varint (frequency difference - 1) << 1 | e, and where e is set a byte with the
difference of codes, which is 1 otherwise.

Positions are a stream for each block: differences that start again with each document, packed by 128, and the rest as
varints.
"""
