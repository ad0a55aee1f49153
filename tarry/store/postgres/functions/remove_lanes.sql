-- remove_lanes_v1: removes the lanes where no job waits. To be called with the lock of the claims of these tasks.
--
-- Arguments  one element for each lane: queue, band, task, name
-- Cost       one look at job_laned for each, and at lane_open for each that is empty
CREATE OR REPLACE FUNCTION {s}.remove_lanes_v1(d_queue text[], d_band int[], d_task text[], d_lane text[])
RETURNS void LANGUAGE plpgsql
AS $function$
BEGIN
    -- In one statement: a row is committed together with its job, so one that does not see the job does not see the
    -- row either. LIMIT keeps the planner from joining.
    DELETE FROM {s}.lane WHERE ctid = ANY (ARRAY(
        SELECT o.at FROM unnest(d_queue, d_band, d_task, d_lane) AS n (queue, band, task, lane)
        CROSS JOIN LATERAL (SELECT l.ctid AS at FROM {s}.lane l WHERE l.again IS NULL AND l.queue = n.queue
            AND l.band = n.band AND l.task = n.task AND l.lane = n.lane LIMIT 2000) AS o
        WHERE (SELECT true FROM {s}.job j WHERE j.state = 1 AND j.lane IS NOT NULL AND j.queue = n.queue
            AND {band} = -n.band AND j.task = n.task AND j.lane = n.lane LIMIT 1) IS NULL
        LIMIT 2000));
END
$function$
