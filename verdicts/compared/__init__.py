"""Consume queues and state tables compared with the records of the log, for verifications and audits."""
