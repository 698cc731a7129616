"""The devices: one file for each way to a GPU. They carry out what the planner decided and decide nothing."""
