"""Jobs over stores: processes, growing logs, searches, and the spool for rows.

Other folders run a `scan_job.ScanJob` by `job_runner`.
"""
