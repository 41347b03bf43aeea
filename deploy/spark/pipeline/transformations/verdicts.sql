-- One row is one state of one transaction, as in the tables of `rmqtx table --into`: its other columns are those of the
-- last change in this state.
CREATE MATERIALIZED VIEW verdicts AS
WITH numbered AS (
  SELECT *, count_if(change <> 'details') OVER (
    PARTITION BY store, transaction_id, producer_group, topic ORDER BY sequence) AS number
  FROM verdict_changes
), states AS (
  SELECT max_by(struct(*), sequence) AS last, min_by(change, sequence) AS begun_by, min(changed_at) AS valid_from
  FROM numbered
  GROUP BY store, transaction_id, producer_group, topic, number
), followed AS (
  SELECT *, lead(valid_from) OVER same AS valid_to, lead(begun_by) OVER same AS closed_by
  FROM states
  WINDOW same AS (PARTITION BY last.store, last.transaction_id, last.producer_group, last.topic ORDER BY last.number)
)
SELECT last.* EXCEPT (sequence, changed_at, change, state_before, number), valid_from, valid_to, closed_by,
  CAST(last.half_store_time AS DATE) AS day
FROM followed
WHERE begun_by <> 'gone';
