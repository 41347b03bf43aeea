"""How much is read at once: splits and jobs over stores, processes, growing logs, searches, and the spool.

Other folders run a `scan_job.ScanJob` by `job_runner`.
"""
