"""Composition root and HTTP edge."""
