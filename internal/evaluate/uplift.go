package evaluate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/hindsight-memory/hindsight/events"
)

// UpliftTask is a closed task with a known outcome for which lessons or rules were found.
type UpliftTask struct {
	// Session is what was drawn: all tasks of a session are shown what was found, or none is.
	Session string `json:"session"`
	// At is when something was first found for the task.
	At time.Time `json:"at"`
	// Withheld says that it is of the control group.
	Withheld bool `json:"withheld"`
	Success  bool `json:"success"`
	// Repeated says that a call failed with an error that an earlier task had met.
	Repeated bool `json:"repeated"`
}

// UpliftOptions are what the size of a trial is reckoned for.
type UpliftOptions struct {
	// Namespace is whose tasks are compared.
	Namespace string
	// Effect is the difference in success, 0 to 1, that shall be found; 0 means 0.05.
	Effect float64
	// Share is the share of sessions in the control group, for a trial that has none yet; 0 means 0.1.
	Share float64
}

const (
	// leastSessions is how many sessions a group must have before anything is claimed: below it an interval drawn from the
	// sessions themselves is not to be trusted.
	leastSessions = 20
	// z80 is the normal quantile of a power of 80 %.
	z80                 = 0.8416212335729143
	defaultUpliftEffect = 0.05
	defaultUpliftShare  = 0.1
)

// Querier asks the record; see store.ClickHouse.
type Querier interface {
	Query(ctx context.Context, statement, format string, w io.Writer) error
	Database() string
}

// Uplift says what recall is worth in a running installation: how often tasks succeed, and repeat a failure, whose session
// was shown lessons, against those from which they were withheld by chance (HINDSIGHT_CONTROL_SHARE).
func Uplift(ctx context.Context, record Querier, o UpliftOptions) (Report, error) {
	tasks, err := upliftTasks(ctx, record, o.Namespace)
	if err != nil {
		return newReport("uplift", 0), err
	}
	return CompareGroups(tasks, o), nil
}

// upliftTasks reads the tasks for which lessons or rules were found. A task counts once something was found for it, shown
// or not: what was found first does not depend on whether it was shown.
func upliftTasks(ctx context.Context, record Querier, namespace string) ([]UpliftTask, error) {
	if err := events.ValidateNamespace(namespace); err != nil {
		return nil, fmt.Errorf("compare treated and control: %w", err)
	}
	db, ns := record.Database(), "'"+namespace+"'" // A namespace is letters, digits, _, - and a dot.
	statement := `WITH
	found AS (
		SELECT r.task_id AS task, max(r.withheld) AS held, min(r.time) AS found_at
		FROM ` + db + `.recalls AS r FINAL
		WHERE r.namespace = ` + ns + ` AND r.task_id != '' AND r.as_of IS NULL AND hasAny(r.item_layers, ['snapshot', 'rule'])
		GROUP BY task
	),
	failures AS (
		SELECT e.task_id AS task, e.tool AS failed_tool, e.error_type AS kind, e.error_signature AS signature, min(e.time) AS met_at
		FROM ` + db + `.trace_events AS e
		WHERE e.namespace = ` + ns + ` AND e.kind = 'step_finished' AND e.status = 'failure' AND e.actor != 'user'
		GROUP BY task, failed_tool, kind, signature
	),
	firsts AS (
		SELECT failed_tool, kind, signature, argMin(task, met_at) AS first_task, min(met_at) AS first_at FROM failures GROUP BY failed_tool, kind, signature
	),
	repeats AS (
		SELECT DISTINCT failures.task AS task FROM failures INNER JOIN firsts USING (failed_tool, kind, signature) WHERE failures.task != firsts.first_task AND failures.met_at > firsts.first_at
	)
SELECT
	if(t.session_id = '', t.task_id, t.session_id) AS session,
	formatDateTime(found.found_at, '%Y-%m-%dT%H:%i:%SZ', 'UTC') AS at,
	toBool(found.held) AS withheld,
	toBool(t.status = 'success') AS success,
	toBool(t.task_id IN (SELECT task FROM repeats)) AS repeated
FROM ` + db + `.tasks AS t FINAL
INNER JOIN found ON found.task = t.task_id
WHERE t.namespace = ` + ns + ` AND t.closed AND t.status IN ('success', 'failure', 'partial')
ORDER BY at, session, t.task_id`
	var out bytes.Buffer
	if err := record.Query(ctx, statement, "JSONEachRow", &out); err != nil {
		return nil, fmt.Errorf("read tasks and what was found for them: %w", err)
	}
	var tasks []UpliftTask
	for decoder := json.NewDecoder(&out); ; {
		var t UpliftTask
		err := decoder.Decode(&t)
		if errors.Is(err, io.EOF) {
			return tasks, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read tasks and what was found for them: %w", err)
		}
		tasks = append(tasks, t)
	}
}

// CompareGroups compares treated tasks with the control group. Only the time in which there was a control group counts:
// tasks before and after it differ from it by more than chance. Intervals are of 95 % and drawn over sessions, since the
// tasks of one are not independent.
func CompareGroups(tasks []UpliftTask, o UpliftOptions) Report {
	report := newReport("uplift", 0)
	effect, share := cmp.Or(o.Effect, defaultUpliftEffect), cmp.Or(o.Share, defaultUpliftShare)
	compared, outside := duringTrial(tasks)
	treated, control, mixed := groups(compared)
	report.Figures["tasks"], report.Figures["tasks_outside_the_trial"], report.Figures["sessions_mixed"] = float64(len(tasks)), float64(outside), float64(mixed)
	for name, g := range map[string][]session{"treated": treated, "control": control} {
		report.Figures[name+"_sessions"], report.Figures[name+"_tasks"] = float64(len(g)), float64(tasksOf(g))
	}
	enough := len(treated) >= leastSessions && len(control) >= leastSessions
	if enough {
		share = float64(len(control)) / float64(len(treated)+len(control))
	}
	if len(control) == 0 { // Every session was shown what was found.
		treated, _, _ = groups(tasks)
	}
	report.Figures["effect_asked_for"], report.Figures["control_share"] = effect, share
	for name, outcome := range map[string]func(session) int{
		"success": func(s session) int { return s.success }, "repeat_failure": func(s session) int { return s.repeated },
	} {
		report.compare(name, treated, control, outcome, enough, effect, share)
	}
	report.Examples = append(report.Examples, upliftVerdict(report, enough, len(control), len(treated)))
	return report
}

// duringTrial leaves out tasks before the first and after the last of the control group.
func duringTrial(tasks []UpliftTask) (during []UpliftTask, outside int) {
	var from, to time.Time
	for _, t := range tasks {
		if !t.Withheld {
			continue
		}
		if from.IsZero() || t.At.Before(from) {
			from = t.At
		}
		if t.At.After(to) {
			to = t.At
		}
	}
	for _, t := range tasks {
		if !from.IsZero() && !t.At.Before(from) && !t.At.After(to) {
			during = append(during, t)
		}
	}
	return during, len(tasks) - len(during)
}

// session is what the tasks of a session came to.
type session struct{ tasks, success, repeated int }

// groups counts by session. A session that is in both groups, since the share was changed, is in neither.
func groups(tasks []UpliftTask) (treated, control []session, mixed int) {
	type both struct{ shown, held session }
	byName := map[string]*both{}
	var names []string
	for _, t := range tasks {
		b := byName[t.Session]
		if b == nil {
			b = &both{}
			byName[t.Session] = b
			names = append(names, t.Session)
		}
		s := &b.shown
		if t.Withheld {
			s = &b.held
		}
		s.tasks++
		if t.Success {
			s.success++
		}
		if t.Repeated {
			s.repeated++
		}
	}
	slices.Sort(names)
	for _, name := range names {
		switch b := byName[name]; {
		case b.shown.tasks > 0 && b.held.tasks > 0:
			mixed++
		case b.held.tasks > 0:
			control = append(control, b.held)
		default:
			treated = append(treated, b.shown)
		}
	}
	return treated, control, mixed
}

func tasksOf(sessions []session) (n int) {
	for _, s := range sessions {
		n += s.tasks
	}
	return n
}

// rate is the share of tasks with an outcome, and spread the variance that one session brings to it: divided by the number
// of sessions it is the variance of the rate, by linearisation of the ratio of two sums.
func rate(sessions []session, outcome func(session) int) (p, spread float64) {
	n := float64(tasksOf(sessions))
	for _, s := range sessions {
		p += float64(outcome(s))
	}
	p /= n
	if len(sessions) < 2 {
		return p, math.NaN()
	}
	var squares float64
	for _, s := range sessions {
		d := float64(outcome(s)) - p*float64(s.tasks)
		squares += d * d
	}
	size := n / float64(len(sessions))
	return p, squares / float64(len(sessions)-1) / (size * size)
}

// compare notes one outcome.
func (r *Report) compare(name string, treated, control []session, outcome func(session) int, enough bool, effect, share float64) {
	var spread float64
	known := false
	if len(treated) > 0 {
		var p float64
		p, spread = rate(treated, outcome)
		r.Figures[name+"_treated"] = p
		known = !math.IsNaN(spread) && spread > 0
	}
	if len(control) > 0 {
		r.Figures[name+"_control"], _ = rate(control, outcome)
	}
	if enough {
		p, ofTreated := rate(treated, outcome)
		q, ofControl := rate(control, outcome)
		a, b := ofTreated/float64(len(treated)), ofControl/float64(len(control))
		deviation := math.Sqrt(a + b)
		t := studentT975(freedom(a, b, len(treated), len(control)))
		r.Figures[name+"_effect"], r.Figures[name+"_effect_low"], r.Figures[name+"_effect_high"] = p-q, p-q-t*deviation, p-q+t*deviation
		r.Figures[name+"_least_effect_seen"] = (z975 + z80) * deviation
		spread = (ofTreated*float64(len(treated)) + ofControl*float64(len(control))) / float64(len(treated)+len(control))
		known = spread > 0
	}
	if known {
		z := (z975 + z80) / effect
		r.Figures[name+"_sessions_needed"] = math.Ceil(spread * z * z / (share * (1 - share)))
	}
}

// freedom is the degrees of freedom of a difference of two means by Welch and Satterthwaite.
func freedom(a, b float64, n, m int) float64 {
	if a+b == 0 {
		return math.Inf(1)
	}
	return (a + b) * (a + b) / (a*a/float64(n-1) + b*b/float64(m-1))
}

// studentT975 is the 97.5 % quantile of Student's t from the normal one, by the expansion of Cornish and Fisher: exact to
// the third decimal from 10 degrees of freedom on, and fewer than 19 do not occur here.
func studentT975(freedom float64) float64 {
	z := z975
	return z + (z*z*z+z)/(4*freedom) + (5*math.Pow(z, 5)+16*z*z*z+3*z)/(96*freedom*freedom)
}

// upliftVerdict says in a sentence what can be said.
func upliftVerdict(r Report, enough bool, control, treated int) string {
	need := ""
	if sessions, is := r.Figures["success_sessions_needed"]; is {
		need = fmt.Sprintf(" To find a difference in success of %.0f points with a power of 80 %%, about %.0f sessions are needed, %.0f %% of them control.",
			100*r.Figures["effect_asked_for"], sessions, 100*r.Figures["control_share"])
	}
	switch {
	case control == 0:
		return "no control group: nothing can be claimed. Set HINDSIGHT_CONTROL_SHARE to withhold lessons from a share of sessions." + need
	case !enough:
		return fmt.Sprintf("too few sessions: nothing can be claimed. There are %d treated and %d control; each group needs %d at least.%s", treated, control, leastSessions, need)
	}
	low, high := r.Figures["success_effect_low"], r.Figures["success_effect_high"]
	said := "the interval covers 0: no effect is shown, which does not mean that there is none"
	switch {
	case low > 0:
		said = "tasks that were shown lessons succeed more often"
	case high < 0:
		said = "tasks that were shown lessons succeed less often"
	}
	return fmt.Sprintf("success: %+.1f points (95 %%: %+.1f to %+.1f): %s.%s", 100*r.Figures["success_effect"], 100*low, 100*high, said, need)
}
