/*
 * sqlface_options.c
 *	  Values of a stream's options: what create_stream and alter_stream accept.
 *
 * Everything refused here is a wrong argument (22023) with a hint that names what would do.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "sqlface/sqlface_internal.h"

static const char *const mode_names[] = {"append", "update", "complete"};
static const char *const change_names[] = {"ignore", "error", "retract"};
static const char *const error_names[] = {"stop", "skip"};
static const char *const policy_names[] = {"min", "max"};
static const char *const start_names[] = {"now", "beginning"};

/* ---------------------------------------------------------------- single values */

static void
bad_value(const char *option, const char *value, const char *hint)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid value for option \"%s\": \"%s\"", option, value),
			 errhint("%s", hint)));
}

static char *
list_of(const char *const *names, int nnames)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < nnames; i++)
		appendStringInfo(&list, "%s'%s'", i == 0 ? "" : i == nnames - 1 ? " or " : ", ", names[i]);
	return list.data;
}

/* The position of value among names; ERROR naming them if it is none. */
static int
choice(const char *option, const char *value, const char *const *names, int nnames)
{
	for (int i = 0; i < nnames; i++)
	{
		if (strcmp(value, names[i]) == 0)
			return i;
	}
	bad_value(option, value, psprintf("Use %s.", list_of(names, nnames)));
	return -1;
}

int64
wms_face_span(const char *option, const Interval *value)
{
	char	   *text = DatumGetCString(DirectFunctionCall1(interval_out, IntervalPGetDatum(value)));
	bool		has_months = false;
	int64		span = wms_interval_us(value, 0, &has_months);

	if (has_months)
		bad_value(option, text, "Months have no fixed length. Give days or hours instead.");
	if (span < 0)
		bad_value(option, text, "It cannot be negative.");
	return span;
}

WmsOutputMode
wms_face_output_mode(const char *value)
{
	return (WmsOutputMode) choice("output_mode", value, mode_names, lengthof(mode_names));
}

WmsOnChange
wms_face_on_change(const char *value)
{
	return (WmsOnChange) choice("on_change", value, change_names, lengthof(change_names));
}

bool
wms_face_skip_errors(const char *value)
{
	return choice("on_error", value, error_names, lengthof(error_names)) == 1;
}

bool
wms_face_watermark_max(const char *value)
{
	return choice("watermark_policy", value, policy_names, lengthof(policy_names)) == 1;
}

bool
wms_face_from_beginning(const char *value)
{
	return choice("start_from", value, start_names, lengthof(start_names)) == 1;
}

void
wms_face_check_options(const WmsStreamDef *def)
{
	if (def->close_when_idle && def->idle_us < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"close_when_idle\" needs \"idle_timeout\""),
				 errhint("Say with idle_timeout after what time without rows a source is idle.")));
	/* a row that was left out is not in any group; when it is taken back its time may be past */
	if (def->on_change == WMS_CHANGE_RETRACT && def->max_future_us >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("option \"max_future\" cannot be combined with on_change => 'retract'"),
				 errhint("Keep such rows out with a CHECK constraint of the table.")));
	if (def->reads_queues && def->on_change != WMS_CHANGE_IGNORE)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("streams of queues ignore UPDATE, DELETE and TRUNCATE"),
				 errdetail("Only the rows of a queue are read, not what happens to them."),
				 errhint("Use on_change => 'ignore', or read an ordinary table.")));
	if (def->idle_us == 0)
		bad_value("idle_timeout", "0", "Give a time above zero, or NULL to switch it off.");
}

/* ---------------------------------------------------------------- changing an option of a stream */

static int64
span_from_text(const char *option, const char *value)
{
	Datum		interval = DirectFunctionCall3(interval_in, CStringGetDatum(value), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1));

	return wms_face_span(option, DatumGetIntervalP(interval));
}

static void
set_trigger_interval(WmsStreamDef *def, const char *value)
{
	def->trigger_us = value ? span_from_text("trigger_interval", value) : 0;
}

static void
set_idle_timeout(WmsStreamDef *def, const char *value)
{
	def->idle_us = value ? span_from_text("idle_timeout", value) : -1;
}

static void
set_close_when_idle(WmsStreamDef *def, const char *value)
{
	if (!value)
		def->close_when_idle = false;
	else if (!parse_bool(value, &def->close_when_idle))
		bad_value("close_when_idle", value, "Use true or false.");
}

static void
set_max_future(WmsStreamDef *def, const char *value)
{
	def->max_future_us = value ? span_from_text("max_future", value) : -1;
}

static void
set_on_error(WmsStreamDef *def, const char *value)
{
	def->skip_errors = value && wms_face_skip_errors(value);
}

static void
set_on_change(WmsStreamDef *def, const char *value)
{
	WmsOnChange on_change = value ? wms_face_on_change(value) : WMS_CHANGE_IGNORE;

	if (on_change != def->on_change && (on_change == WMS_CHANGE_RETRACT || def->on_change == WMS_CHANGE_RETRACT))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_change => 'retract' is fixed at the creation of a stream"),
				 errdetail("The state of a stream that takes rows back is kept in another form."),
				 errhint("Drop the stream, which keeps its result, and create it again.")));
	def->on_change = on_change;
}

static void
set_late_table(WmsStreamDef *def, const char *value)
{
	def->late_table = value ? wms_define_late_table(value, def->stream, def->view, def->owner) : InvalidOid;
}

/* The stream's plan with the options as they are to be; ERROR if it would be refused. */
WmsStreamPlan *
wms_face_plan(const WmsStreamDef *def)
{
	WmsOptions	options = {.mode = def->output_mode,.lateness_us = def->lateness_us,.refines = def->refined,.delay_us = def->delay_us,
	.retract = def->on_change == WMS_CHANGE_RETRACT,.result = def->stream};
	WmsRefusal *refusal = NULL;
	WmsStreamPlan *plan;
	WmsFaceOwner scope;

	wms_face_become_owner(def, &scope);
	plan = wms_analyze_view(def->view, &options, &refusal);
	wms_face_leave_owner(&scope);
	if (!plan)
		wms_refusal_raise(refusal, NULL);
	return plan;
}

typedef struct Reader
{
	const WmsStreamDef *def;
	WmsStreamPlan *plan;
} Reader;

static void
plan_reader(void *arg)
{
	Reader	   *reader = arg;
	const WmsStreamDef *def = reader->def;
	WmsOptions	options = {.mode = def->output_mode,.lateness_us = def->lateness_us,.delay_us = def->delay_us,.result = def->stream};
	WmsRefusal *refusal = NULL;
	WmsFaceOwner scope;

	wms_face_become_owner(def, &scope);
	reader->plan = wms_analyze_view(def->view, &options, &refusal);
	wms_face_leave_owner(&scope);
}

/*
 * As a stream source, not as a static table; a stream whose definition is refused by now, or whose owner may not read it any more, reads
 * nothing: that must not be in the way of who owns the other one.
 */
static bool
reads_as_stream(const WmsStreamDef *def, Oid relid)
{
	Reader		reader = {def, NULL};
	ErrorData  *edata;

	if (!wms_is_part_of(relid, wms_definition_reads(def->view)))
		return false;
	edata = wms_in_subtransaction(plan_reader, &reader, true);
	if (edata && edata->sqlerrcode != ERRCODE_INSUFFICIENT_PRIVILEGE)
		ReThrowError(edata);
	for (int i = 0; reader.plan && i < reader.plan->nsources; i++)
		if (wms_is_part_of(relid, list_make1_oid(reader.plan->sources[i].relid)))
			return true;
	return false;
}

static int
compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(lfirst(a), lfirst(b));
}

char *
wms_face_readers(const WmsStreamDef *def)
{
	List	   *names = NIL;
	StringInfoData text;
	ListCell   *lc;

	foreach(lc, wms_registry_streams())
	{
		WmsStreamDef *reader = lfirst(lc);

		if (reader->on_change != WMS_CHANGE_RETRACT && reads_as_stream(reader, def->stream))
			names = lappend(names, get_rel_name(reader->stream));
	}
	list_sort(names, compare_names);
	initStringInfo(&text);
	foreach(lc, names)
		appendStringInfo(&text, "%s\"%s\"", text.len ? ", " : "", (char *) lfirst(lc));
	return names ? text.data : NULL;
}

/* Streams that read the result take its rows as they were written first. */
void
wms_face_check_readers(const WmsStreamDef *def)
{
	char	   *readers = wms_stream_changes_rows(def) ? wms_face_readers(def) : NULL;

	if (readers)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("rows of \"%s\" cannot be changed: they are read by stream %s", get_rel_name(def->stream), readers),
				 def->output_mode == WMS_APPEND ? errhint("Leave allowed_lateness out, and give the watermark a longer delay.")
				 : errhint("Write into another table.")));
}

/* Rows that come late after their window was written change them in place, which needs a key to find them by. */
static void
set_allowed_lateness(WmsStreamDef *def, const char *value)
{
	WmsStreamPlan *plan;
	WmsShape	shape;

	def->lateness_us = value ? span_from_text("allowed_lateness", value) : 0;
	wms_face_check_readers(def);
	def->refined |= def->lateness_us > 0;
	plan = wms_face_plan(def);
	if (def->lateness_us == 0 || def->has_key || plan->key_columns == NIL)
		return;
	shape.desc = plan->result_desc;
	shape.key_columns = plan->key_columns;
	shape.key_not_null = plan->key_not_null;
	shape.text = NULL;
	shape.places = NULL;
	wms_define_key(def->stream, &shape);
	def->has_key = true;
}

/* Months count 31 days in a delay, as they do in watermark(). */
static int64
delay_from_text(const char *value)
{
	Interval   *interval = DatumGetIntervalP(DirectFunctionCall3(interval_in, CStringGetDatum(value),
																 ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
	bool		has_months = false;
	int64		delay = wms_interval_us(interval, 31, &has_months);

	if (delay < 0)
		bad_value("delay", value, "It cannot be negative.");
	return delay;
}

static void
set_delay(WmsStreamDef *def, const char *value)
{
	def->delay_us = value ? delay_from_text(value) : -1;
	(void) wms_face_plan(def);
}

/* All options by name; those without a setter are fixed at creation. */
static const struct
{
	const char *name;
	void		(*set) (WmsStreamDef *def, const char *value);
}			all_options[] = {
	{"trigger_interval", set_trigger_interval},
	{"allowed_lateness", set_allowed_lateness},
	{"late_table", set_late_table},
	{"idle_timeout", set_idle_timeout},
	{"close_when_idle", set_close_when_idle},
	{"max_future", set_max_future},
	{"on_error", set_on_error},
	{"on_change", set_on_change},
	{"delay", set_delay},
	{"query", NULL},
	{"result", NULL},
	{"output_mode", NULL},
	{"watermark_policy", NULL},
	{"start_from", NULL}
};

static void
unknown_option(const char *option)
{
	StringInfoData hint;

	initStringInfo(&hint);
	appendStringInfoString(&hint, "Options that can be changed are:");
	for (int i = 0; i < (int) lengthof(all_options); i++)
	{
		if (all_options[i].set)
			appendStringInfo(&hint, "%s %s", i == 0 ? "" : ",", all_options[i].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized option \"%s\"", option),
			 errhint("%s.", hint.data)));
}

void
wms_face_set_option(WmsStreamDef *def, const char *option, const char *value)
{
	for (int i = 0; i < (int) lengthof(all_options); i++)
	{
		if (strcmp(option, all_options[i].name) != 0)
			continue;
		if (!all_options[i].set)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("option \"%s\" of a stream is fixed at its creation", option),
					 errhint("Drop the stream, which keeps its result, and create it again.")));
		all_options[i].set(def, value);
		wms_face_check_options(def);
		return;
	}
	unknown_option(option);
}
