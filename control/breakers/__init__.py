"""Breakers: named switches over a scope. Closed lets calls through, open refuses them."""
