package evaluate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hindsight-memory/hindsight/internal/evaluate/report"
)

// suiteText is what a page says of a suite beside its figures.
type suiteText struct {
	title, lead string
	// headlines are figures with what they are of.
	headlines [][2]string
	notShown  []string
	method    []string
}

// SuitePage tells the result of one of the smaller suites. command is what repeats it.
func SuitePage(r Report, command string) report.Page {
	text, f := textOf(r), figures(r.Figures)
	page := report.Page{
		Title: text.title, Lead: text.lead, NotShown: text.notShown, Method: text.method, Command: command,
		Made: fmt.Sprintf("Suite %s, seed %d.", r.Suite, r.Seed),
	}
	for _, h := range text.headlines {
		value, there := f[h[0]]
		if !there {
			continue
		}
		shown := report.Headline{Value: strconv.FormatFloat(value, 'f', 3, 64), Label: h[1]}
		if low, is := f[h[0]+"_low"]; is {
			shown.Interval = fmt.Sprintf("95 %%: %.3f to %.3f", low, f[h[0]+"_high"])
		}
		page.Headlines = append(page.Headlines, shown)
	}
	bars := report.Bars{Title: "Shares, with intervals of 95 %", Decimals: 2}
	all := report.Table{Head: []string{"figure", "value"}}
	for _, name := range slices.Sorted(maps.Keys(f)) {
		all.Rows = append(all.Rows, []string{name, strconv.FormatFloat(f[name], 'f', 3, 64)})
		if low, is := f[name+"_low"]; is && low >= 0 {
			bars.Bars = append(bars.Bars, report.Bar{Label: strings.ReplaceAll(name, "_", " "), Value: f[name], Low: low, High: f.value(name + "_high")})
		}
	}
	if len(bars.Bars) > 0 {
		page.Sections = append(page.Sections, report.Section{Title: "How sure it is", Bars: &bars})
	}
	if len(r.Examples) > 0 {
		page.Sections = append(page.Sections, report.Section{Title: "Examples", Examples: r.Examples})
	}
	page.Sections = append(page.Sections, report.Section{Title: "All figures", Table: &all})
	return page
}

// textOf words what a report says.
func textOf(r Report) suiteText {
	f := figures(r.Figures)
	switch r.Suite {
	case "situations":
		return suiteText{
			"Situations: are decisions of one kind nearer than what only looks like them?",
			fmt.Sprintf("Of %s triples the decision of the same kind was nearer in %s; both were on their right side of the threshold of sameness in %s.",
				f.whole("triples"), f.percent("accuracy"), f.percent("told_apart_by_duplicate")),
			[][2]string{{"accuracy", "same nearer than decoy"}, {"margin_mean", "mean margin, calibrated similarity"}, {"decoy_below_duplicate", "decoys under the threshold of sameness"}},
			[]string{"It says how near texts are to the embedding model. What is recalled or merged depends on structure, words and the record as well."},
			[]string{"Each side becomes the text that the product embeds of a decision. A tie counts against it. Intervals are Wilson's."},
		}
	case "merge":
		return suiteText{
			"Merge: are lessons merged that say the same, and no others?",
			fmt.Sprintf("Of %s pairs, %s say the same: %s of them were merged, and %s others as well.", f.whole("pairs"), f.whole("pairs_same"), f.whole("true_merges"), f.whole("false_merges")),
			[][2]string{{"precision", "of merges are right"}, {"recall", "of what says the same is merged"}, {"f1", "F1"}},
			[]string{"Pairs are judged alone. In the product a lesson is compared with the earliest of each cluster, and a person may take members apart."},
			[]string{"The decision is the product's own: tool, error and condition, then the calibrated similarity of the situations, then what tells two wordings apart. A file has no goal, so that the situation is made of tool, error and condition."},
		}
	case "embeddings":
		return suiteText{
			"Embeddings: at which place is the text that answers a question?",
			fmt.Sprintf("Over %s questions the mean reciprocal rank is %.3f; across languages %.3f.", f.whole("questions"), f["mrr"], f["cross_mrr"]),
			[][2]string{{"mrr", "mean reciprocal rank"}, {"hit1", "in the first place"}, {"cross_mrr", "mean reciprocal rank across languages"}},
			[]string{"It is the embedding model alone: recall also searches by words, entities and rules."},
			[]string{"All documents are ranked for each question by the cosine. A tie counts against the answer."},
		}
	case "reflection":
		return suiteText{
			"Reflection: are the decisions kept where people see the root cause?",
			fmt.Sprintf("Of %s runs with a root cause named by a person, one of the decisions kept was there in %s. At most %s could be, since only calls are kept; by chance it would be %s.",
				f.whole("runs_with_root_cause"), f.percent("root_cause_found"), f.percent("root_cause_ceiling"), f.percent("root_cause_found_by_chance")),
			[][2]string{{"root_cause_found", "root causes found"}, {"root_cause_ceiling", "could be found"}, {"decisions_kept_that_are_no_root_cause", "of decisions kept are no root cause"}},
			[]string{"It says where, and not whether the lesson is right. A decision that is no root cause may be worth keeping all the same."},
			[]string{"The product reflects the runs without the labels, which the import never reads. A decision counts when the labelled message is one of its two, or the one before or after."},
		}
	case "recall":
		return suiteText{
			"Recall: is what a user expects in the answer?",
			fmt.Sprintf("Of %s questions, %s had what was expected in the first place and %s among the first five.", f.whole("questions"), f.percent("hit1"), f.percent("hit5")),
			[][2]string{{"hit1", "in the first place"}, {"hit5", "among the first five"}, {"mrr", "mean reciprocal rank"}, {"tokens_mean", "tokens an answer"}},
			[]string{"The questions are the user's own: the figures hold for them, and for the installation as it was."},
			[]string{"Each question is asked as an agent would ask it. For what is missing it is asked again with the limits taken away one by one."},
		}
	case "poison":
		return suiteText{
			"Poison: what of that which is planted to do harm is shown?",
			fmt.Sprintf("Of what was planted to do harm, %s was shown to an agent over all doors. Of what is harmless, %s was held back at the doors that store what they are given.",
				f.percent("attack_success"), f.percent("false_quarantine")),
			[][2]string{{"attack_success", "of poisoned items are shown"}, {"false_quarantine", "of harmless items are held back"}},
			[]string{
				"It is what an agent is shown, and not what an agent would do with it. Made-up attacks are few and plain; an attacker words them otherwise.",
				"By the output of tools and documents nothing is stored as it is: there a harmless text is nearly always absent, which false_quarantine of these doors counts.",
			},
			[]string{"Each experience is planted by each door into a namespace of its own, and asked for by retrieve_similar and memory_search over MCP. A poisoned one counts as shown when six words in a row of what does the harm (or the link, account or secret) are in any answer."},
		}
	default:
		return suiteText{
			"Uplift: does recall help?", strings.Join(firstOf(r.Examples, 1), ""),
			[][2]string{{"success_effect", "difference in success"}, {"repeat_failure_effect", "difference in repeated failures"}, {"success_sessions_needed", "sessions needed for the effect asked for"}},
			[]string{"It holds for the tasks for which lessons were found, in the time in which there was a control group."},
			[]string{"Sessions are drawn by hash. Rates are compared over tasks, with a variance by sessions and Student's t by Welch."},
		}
	}
}
