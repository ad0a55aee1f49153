-- insert_v1: as insert_v2, for older workers, which count nothing.
--
-- Arguments  as insert_v2, without k_attempts and counted
-- Answer     as insert_v2
-- Cost       as insert_v2
CREATE OR REPLACE FUNCTION {s}.insert_v1(p_id uuid[], p_kind int[], p_due bigint[], p_since bigint[], p_body bytea[],
    k_task text[], k_queue text[], k_rank bigint[], k_state smallint[], k_epoch int[], k_failures int[], k_losses int[],
    k_until bigint[], k_expires bigint[], k_key text[], k_note bytea[], k_unique bigint[], k_holds bigint[],
    k_lane text[], k_headers bytea[], k_progress bytea[], keyed boolean, unordered boolean, channel text, token text)
RETURNS TABLE (place bigint, lives bytea) LANGUAGE plpgsql AS $function$
BEGIN
    RETURN QUERY SELECT i.place, i.lives FROM {s}.insert_v2(p_id, p_kind, p_due, p_since, p_body, k_task, k_queue,
        k_rank, k_state, k_epoch, k_failures, k_losses, k_until, k_expires, k_key, k_note, k_unique, k_holds, k_lane,
        k_headers, k_progress, array_fill(''::bytea, ARRAY[cardinality(k_task)]), keyed, unordered, channel, token,
        '') AS i;
END
$function$
