package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/hindsight-memory/hindsight/internal/config"
)

func (a *app) configCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Print every setting, its value and where it came from",
		Long: "Settings come from the built-in default, then hindsight.yaml (the file that HINDSIGHT_CONFIG names, else the one in\n" +
			"HINDSIGHT_DATA_DIR), then the environment; the later wins. Secrets are masked.",
		Example: "  hindsight config\n  HINDSIGHT_TASK_IDLE=5m hindsight config --json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(a.cfg.Settings())
			}
			table := a.newTable()
			table.rowf("SETTING\tVALUE\tFROM\tIN FILE\tMEANING\n")
			for _, s := range a.cfg.Settings() {
				table.rowf("%s\t%s\t%s\t%s\t%s\n", s.Name, s.Value, s.Source, s.Key, s.Help)
			}
			if err := table.Flush(); err != nil {
				return fmt.Errorf("write table: %w", err)
			}
			if unknown := config.Unknown(a.environ); len(unknown) > 0 {
				a.sayf("not a setting, perhaps misspelt: %s\n", strings.Join(unknown, ", "))
			}
			return nil
		},
	}
}
