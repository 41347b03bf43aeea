CREATE MATERIALIZED VIEW duplicates AS
SELECT day, topic, producer_group, count(*) AS delivered_twice, sum(deliveries_count - 1) AS surplus_deliveries,
  min(transaction_id) AS example
FROM verdicts
WHERE valid_to IS NULL AND deliveries_count > 1
GROUP BY day, topic, producer_group
ORDER BY day, delivered_twice DESC, topic, producer_group;
