"""Rows and SQL; nothing else knows ClickHouse."""
