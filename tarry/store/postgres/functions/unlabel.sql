-- unlabel_v1: removes the labels of a deleted job from their index. A trigger of job; for jobs whose headers have a
-- label.
--
-- Arguments  none
-- Answer     NULL
-- Cost       one look into label_of, and one row for each label
CREATE OR REPLACE FUNCTION {s}.unlabel_v1() RETURNS trigger LANGUAGE plpgsql
    -- Plans must not depend on when the tables were last analysed: each statement has its index.
    SET enable_seqscan = off
    SET jit = off
AS $function$
BEGIN
    DELETE FROM {s}.label l WHERE l.job = OLD.id;
    RETURN NULL;
END
$function$
