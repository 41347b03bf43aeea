"""The programming interface of rmqtx; `rmqtx.spark` is for Spark."""
