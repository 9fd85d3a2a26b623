"""Measurements against pylance, in one run, interleaved. `python -m bench` lists them."""
