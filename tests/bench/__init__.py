"""Tests of the benchmark: that it works, tells the truth and names what fails. None of them judges a time."""
