"""Grafana dashboards as typed builders."""
