"""Tests that take long and need neither Spark nor another process: `make check` leaves them out, `make test` runs them.

Each takes half a second or more of CPU time in its first case. Other tests of the same file or package stay.
"""

from __future__ import annotations

LONG_TESTS: dict[str, tuple[str, ...]] = {
    "cli/test_json.py": ("test_every_verb_has_a_status",),
    "cli/test_maintenance.py": ("test_a_threshold_of_zero_drops_every_deleted_row_as_pylance_does",),
    "engine/test_local_engine.py": ("test_more_destinations_than_open_files",),
    "format/test_number_file.py": ("test_damage_raises_a_named_error_or_returns_rows",),
    "format/test_opening.py": ("test_a_manifest_of_many_fragments",),
    "hostile_names/test_columns.py": ("test_maintenance_of_all_of_them",),
    "hostile_names/test_shown.py": ("test_text",),
    "index/bitmap/test_row_map.py": ("test_what_was_written_is_read",),
    "index/btree/test_row_sequence.py": ("test_any_cuts_give_back_all_rows",),
    "index/inverted/test_damaged_files.py": (
        "test_a_damaged_dictionary_never_leads_outside",
        "test_damaged_lists_are_refused_or_decoded_within_bounds",
    ),
    "index/inverted/test_remap.py": ("test_a_remapped_segment_finds_the_rows_of_today",),
    "index/inverted/test_search.py": (
        "test_every_kind_of_query_agrees_with_pylance_and_the_naive_index",
        "test_several_segments_are_scored_as_one_index",
        "test_only_allowed_documents_are_found_with_unchanged_scores",
    ),
    "index/ngram/test_folding.py": (
        "test_a_sample_of_the_table_is_what_pylance_does",
        "test_letters_that_differ_in_case_only_become_the_same",
    ),
    "index/ngram/test_postings.py": ("test_lists_are_those_of_pylance",),
    "index/ngram/test_search.py": (
        "test_any_part_of_any_text_is_found",
        "test_any_pattern_finds_what_a_scan_finds",
    ),
    "index/vector/test_assignment.py": (
        "test_almost_all_vectors_get_the_nearest_centroid",
        "test_training_reaches_the_loss_of_full_comparisons",
        "test_points_of_a_centroid_that_is_taken_away_find_another",
    ),
    "index/vector/test_kmeans.py": (
        "test_equal_seeds_give_equal_bits_with_any_number_of_threads",
        "test_training_by_groups_reaches_the_loss_of_training_without",
        "test_training_by_groups_gives_equal_bits_with_any_number_of_threads",
    ),
    "index/zones/test_pylance_files.py": (
        "test_zone_maps_answer_like_a_scan",
        "test_bloom_filters_answer_like_a_scan",
    ),
    "jobs/audit/test_audit.py": (
        "test_nothing_is_wrong_with_what_pennon_maintains",
        "test_nothing_is_wrong_with_what_stock_maintains",
        "test_damaged_files_and_rows_are_found_and_built_anew",
    ),
    "jobs/bitmap/test_interop.py": (
        "test_every_type_and_operator_agrees",
        "test_files_are_those_of_pylance",
        "test_pennon_reads_what_pylance_built",
        "test_life_under_both",
        "test_life_of_labels_under_both",
    ),
    "jobs/btree/test_interop.py": (
        "test_every_type_and_operator_agrees",
        "test_stable_row_ids_agree",
        "test_pennon_reads_what_stock_built",
        "test_stock_maintenance_keeps_the_index_right",
        "test_deferred_compaction_by_stock",
    ),
    "jobs/btree/test_merge.py": (
        "test_stock_segments_are_merged",
        "test_one_source_far_larger_than_the_others",
        "test_any_segments_merge",
    ),
    "jobs/inverted/test_life.py": (
        "test_deltas_and_their_merge",
        "test_a_merge_drops_dead_documents",
        "test_compactions",
        "test_texts_change_in_place_and_by_update",
        "test_pennon_maintains_what_pylance_wrote",
    ),
    "jobs/knn_join/test_join.py": ("test_under_a_filter_it_has_the_recall_of_single_searches",),
    "jobs/near_duplicates/test_near_duplicates.py": ("test_pairs_and_groups_are_those_of_brute_force",),
    "jobs/ngram/test_interop.py": ("test_random_texts_in_merged_segments",),
    "jobs/rtree/test_interop.py": (
        "test_a_life_of_deletions_appends_and_merges",
        "test_compactions_that_leave_the_remapping",
    ),
    "jobs/test_branches.py": (
        "test_own_indices_and_their_upkeep",
        "test_moves_in_a_file_of_the_base",
        "test_stable_row_ids",
        "test_orphans_of_the_base_are_not_what_branches_use",
        "test_a_base_on_an_object_store",
    ),
    "jobs/test_compact.py": (
        "test_a_long_reuse_index_is_kept_in_a_file",
        "test_pylance_can_search_graphs_after_a_deferred_compaction_of_deleted_rows",
        "test_graphs_whose_deleted_rows_pylance_moved_are_reported_and_healed",
    ),
    "jobs/test_kinds_and_verbs.py": (
        "test_no_index_is_left_behind",
        "test_tables_that_share_files_with_another",
    ),
    "jobs/test_zones.py": (
        "test_several_segments_and_their_merge",
        "test_compactions",
        "test_values_change_in_place_and_by_update",
        "test_pennon_maintains_what_pylance_wrote",
        "test_files_are_those_of_pylance",
        "test_every_type_and_operator_agrees",
    ),
    "jobs/tune/test_tune.py": (
        "test_a_search_has_the_recall_it_was_asked_for_and_expects",
        "test_each_index_reaches_it",
        "test_the_recall_of_a_result_is_that_of_its_options",
        "test_a_row_is_not_its_own_answer",
        "test_a_filter_is_measured_and_stored_by_its_shape",
        "test_without_anything_stored_a_handle_measures_once",
        "test_recall_one_measures_every_row_if_nothing_else_is_certain",
        "test_a_stored_choice_is_doubted_when_the_table_has_changed",
        "test_an_index_is_chosen_for_recall_and_memory",
        "test_the_command_line",
    ),
    "jobs/vector/test_bits.py": (
        "test_pylance_and_pennon_build_the_same_index",
        "test_a_whole_life",
    ),
    "jobs/vector/test_build.py": (
        "test_stock_finds_what_it_finds_in_its_own_index",
        "test_trained_models_serve_as_well_as_stocks",
        "test_equal_seeds_make_equal_files",
    ),
    "jobs/vector/test_optimize.py": ("test_merges_in_any_order_are_one_build",),
    "jobs/vector/test_several.py": (
        "test_pylance_and_pennon_use_the_indices_of_both",
        "test_a_whole_life",
    ),
    "query/filter/test_expression_sql.py": ("test_an_expression_selects_what_it_selects_for_pylance",),
    "query/filter/test_parse_agreement.py": (
        "test_labels_mean_what_they_mean_to_lance",
        "test_searches_for_parts_of_a_text_find_all_that_lance_finds",
        "test_any_combination_means_what_it_means_to_lance",
        "test_operators_bind_as_they_bind_in_lance",
        "test_what_is_broken_to_us_is_broken_to_lance",
    ),
    "query/lookup/test_find.py": ("test_a_lookup_equals_a_scan",),
    "query/scan/test_damage.py": ("test_damage_is_noticed_and_answered_by_a_scan",),
    "query/scan/test_scan.py": (
        "test_conditions_on_several_indexed_columns_with_different_coverage",
        "test_long_lists_of_values",
    ),
    "query/search/test_batch.py": ("test_little_memory_changes_nothing",),
    "query/search/test_joined.py": ("test_answers_are_those_of_single_segments",),
    "query/text/test_combined.py": (
        "test_as_pylance_through_the_life_of_a_table",
        "test_columns_that_are_covered_in_part_or_not_at_all",
    ),
    "query/text/test_every_answer.py": ("test_all_give_the_same",),
    "query/text/test_pylance.py": (
        "test_appends_deletions_deltas_and_compactions",
        "test_deferred_compactions",
        "test_several_segments_with_uncovered_rows_between",
        "test_a_column_without_an_index_is_scanned_as_it_is_written",
        "test_queries_over_several_columns",
    ),
    "spark/test_stream_batches.py": ("test_random_failures",),
    "test_concurrency.py": ("test_two_maintainers_and_a_writer",),
}
