"""What a run can be held to: receipts, replay, the first difference of two runs, injected
faults."""
