"""The guard inside agent frameworks: one file each, imported by name, so that none needs the others."""
