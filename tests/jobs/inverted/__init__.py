"""Inverted indices through their whole life."""
