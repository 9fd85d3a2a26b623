"""The dictionary of a partition: terms in byte order with the rows of their posting lists, as one finite state machine.

    u64 3, u64 0; nodes; u64 number of keys, u64 address of the root; u32 CRC-32C, masked

A node is read backwards from its address, the place of its last byte:

    11cccccc  one transition without output, to the node written just before
    10cccccc  one transition: sizes, how far back the target is, output
    0fnnnnnn  f: a key ends here; n transitions (0: their number is in a byte of its own, in which 1 means 256);
              sizes; for more than 32 a table from byte to place; inputs; distances; outputs; the output of the key

`c` is the place of the input in a list of frequent bytes, from 1; for 0 the input is a byte of its own. Numbers are
little endian, of as many bytes as the sizes byte gives (distance << 4 | output). Address 0 is the node in which a key
ends and nothing follows. Outputs along a path add up to the value of its key. Targets are before the nodes that lead to
them, so that every path comes to an end.
"""
