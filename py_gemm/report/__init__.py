"""What is told to people: `info`, the last run, and (as they come) verdicts and benchmarks."""
