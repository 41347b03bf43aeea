CREATE MATERIALIZED VIEW time_to_decision AS
WITH decided AS (
  SELECT day, producer_group, decided_time - half_store_time AS took
  FROM verdicts
  WHERE valid_to IS NULL AND state IN ('COMMITTED', 'ROLLED_BACK')
), measured AS (
  SELECT day, producer_group, extract(DAY FROM took) * 86400 + extract(HOUR FROM took) * 3600
    + extract(MINUTE FROM took) * 60 + extract(SECOND FROM took) AS seconds
  FROM decided
)
SELECT day, producer_group, count(*) AS decided,
  percentile_cont(0.5) WITHIN GROUP (ORDER BY seconds) AS median_s,
  percentile_cont(0.95) WITHIN GROUP (ORDER BY seconds) AS percentile_95_s,
  max(seconds) AS longest_s
FROM measured
GROUP BY day, producer_group
ORDER BY day, producer_group;
