"""What is told to people: `info`, the last run, verdicts and benchmarks."""
