"""Faults reported elsewhere, and misuse."""
