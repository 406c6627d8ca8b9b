"""How agents as they are get attached and stopped."""
