-- exchange_v1: as exchange_v2, for older workers, which count nothing and keep no attempts.
--
-- Arguments  as exchange_v2, without k_attempts and counted
-- Answer     as exchange_v2, without attempts
-- Cost       as exchange_v2
CREATE OR REPLACE FUNCTION {s}.exchange_v1(lazy boolean, c_id uuid[], c_kind int[], c_note bytea[], k_was smallint[],
    k_epoch int[], k_to smallint[], k_since bigint[], k_due bigint[], k_failures int[], k_losses int[],
    k_until bigint[], k_queue text[], k_rank bigint[], k_expires bigint[], k_holds bigint[], k_body bytea[],
    k_owner text[], singly boolean, now_ bigint, w_queue text[], w_band smallint[], w_count int[], w_start bigint[],
    w_late_start bigint[], scheduled_from bigint, most int, promoted int, me text, lease bigint)
RETURNS TABLE (id bytea, task text, body bytea, queue text, priority bigint, due bigint, epoch int, failures int,
    losses int, expires bigint, key text, note bytea, unique_for bigint, holds bigint, lane text, headers bytea,
    progress bytea, made int[], starts bigint[], late_starts bigint[], scheduled_start bigint, next_due bigint,
    limited boolean, in_lanes boolean) LANGUAGE plpgsql AS $function$
BEGIN
    RETURN QUERY SELECT e.id, e.task, e.body, e.queue, e.priority, e.due, e.epoch, e.failures, e.losses, e.expires,
        e.key, e.note, e.unique_for, e.holds, e.lane, e.headers, e.progress, e.made, e.starts, e.late_starts,
        e.scheduled_start, e.next_due, e.limited, e.in_lanes FROM {s}.exchange_v2(
        lazy, c_id, c_kind, c_note, k_was, k_epoch, k_to, k_since, k_due, k_failures, k_losses, k_until,
        k_queue, k_rank, k_expires, k_holds, k_body, k_owner, array_fill(NULL::bytea, ARRAY[cardinality(k_was)]),
        singly, now_, w_queue, w_band, w_count, w_start, w_late_start, scheduled_from, most, promoted, me, lease,
        '') AS e;
END
$function$
