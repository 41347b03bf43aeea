CREATE MATERIALIZED VIEW hanging AS
SELECT day, producer_group, count(*) AS hanging, max(checks_count) AS most_checks, min(half_store_time) AS since
FROM verdicts
WHERE valid_to IS NULL AND state = 'PENDING'
GROUP BY day, producer_group
ORDER BY day, hanging DESC, producer_group;
