"""Workloads, baselines and reports: one measurement a module, run by `zerolayer bench NAME`."""
