"""Which acts of the console are done in a browser, and where. The fixture `what_was_promised` holds each test to it."""

DOES = {
    "test_a_queue_is_paused_and_resumed": "pause_queue resume_queue",
    "test_a_queue_is_purged_after_a_second_press": "purge_queue",
    "test_a_dead_job_is_found_and_sent_again": "retry_job",
    "test_a_waiting_job_is_moved_run_cancelled_and_deleted": "move_job retry_job cancel_job delete_job",
    "test_a_waiting_job_is_mended_and_cloned": "edit_job clone_job",
    "test_many_jobs_are_counted_first_and_then_changed": "start_operation",
    "test_selected_jobs_are_changed_and_no_others": "change_selected",
    "test_the_dead_jobs_of_an_error_are_sent_again_and_deleted": "retry_error delete_error mute_error unmute_error",
    "test_an_operation_is_stopped": "stop_operation",
    "test_a_schedule_is_run_paused_and_resumed": "run_schedule pause_schedule resume_schedule",
    "test_a_schedule_is_made_edited_and_deleted": "put_schedule delete_schedule",
    "test_a_limit_is_set_changed_and_reset": "set_limit reset_limit",
    "test_one_key_of_a_task_is_paused_and_resumed": "pause_limit_key resume_limit_key set_limit reset_limit",
    "test_a_bound_is_set_changed_and_reset": "set_bound reset_bound",
    "test_an_http_task_is_added_tried_disabled_and_removed": "add_task edit_task remove_task",
    "test_an_endpoint_is_paused_resumed_and_its_jobs_sent_again": "pause_endpoint resume_endpoint replay_endpoint",
    "test_an_open_circuit_is_tried_and_closed": "probe_endpoint close_endpoint",
    "test_a_queue_that_is_stuck_is_traced_to_a_hung_job_which_is_killed": "dump_job kill_job",
    "test_a_host_is_scaled_and_reloaded_and_a_worker_shows_where_it_is": "scale_host dump_worker reload_host",
    "test_a_host_is_stopped_after_a_second_press": "stop_host",
    "test_a_connection_is_ended_after_a_second_press": "end_connection",
    "test_a_flow_that_failed_is_retried": "retry_flow",
    "test_a_flow_is_cancelled_with_what_runs": "cancel_flow",
    "test_a_decision_with_a_note_lets_its_job_go_on": "decide_approval",
}
"""The acts that each test does, by the names of their methods."""
