-- signal_v1: signal_v2 for workers of earlier versions, which know of no pieces: all who await the signal are woken.
--
-- Arguments  as signal_v2
-- Answer     the ids of the jobs that are ready by this, 16 bytes each; none if the address has this id already
-- Cost       that of signal_v2, for all jobs that await it
CREATE OR REPLACE FUNCTION {s}.signal_v1(name text, topic text, id bytea, value bytea, until bigint, last_until bigint,
    kept bigint, now_ bigint)
RETURNS bytea LANGUAGE sql AS $function$
    SELECT awake FROM {s}.signal_v2(name, topic, id, value, until, last_until, kept, 9223372036854775807, now_)
$function$
