"""Tests of the exact reference."""
