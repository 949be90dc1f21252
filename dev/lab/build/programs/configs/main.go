// Command configs says for many sets of values what a chart makes of each, with Helm's own libraries.
//
//	configs CHART NAMESPACE TEMPLATE...
//
// Each line of stdin is a set of values in JSON; each line of stdout answers the one at the same place:
// {"refused": ...} in Helm's words, {"broken": ...} when a rendered template is no YAML, or {"config": ...}, the data of
// config.yaml. Of the chart's templates only the named ones, the first of them the ConfigMap, and partials are rendered.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	longestLine = 16 << 20
	// Each set leaves much garbage, and little memory is needed in all.
	garbage = 1000
)

type answer struct {
	Refused string `json:"refused,omitempty"`
	Broken  string `json:"broken,omitempty"`
	Config  string `json:"config,omitempty"`
}

type renderer struct {
	chart     *chart.Chart
	namespace string
	templates []string
}

func main() {
	if len(os.Args) < 4 {
		fail("usage: configs CHART NAMESPACE TEMPLATE...")
	}
	loaded, err := loader.Load(os.Args[1])
	if err != nil {
		fail(err.Error())
	}
	debug.SetGCPercent(garbage)
	render := renderer{loaded, os.Args[2], os.Args[3:]}
	loaded.Templates = slices.DeleteFunc(loaded.Templates, render.isOther)
	if err := render.all(); err != nil {
		fail(err.Error())
	}
}

func (r renderer) isOther(file *common.File) bool {
	partial := strings.HasSuffix(file.Name, ".tpl")
	return !partial && !slices.Contains(r.templates, file.Name)
}

// all answers in the order of the questions, several at a time.
func (r renderer) all() error {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, longestLine)
	pending := make(chan chan answer, 8)
	var written sync.WaitGroup
	written.Go(func() { write(pending) })
	for lines.Scan() {
		values, result := lines.Text(), make(chan answer, 1)
		pending <- result
		go func() { result <- r.one(values) }()
	}
	close(pending)
	written.Wait()
	return lines.Err()
}

func write(pending <-chan chan answer) {
	out := json.NewEncoder(os.Stdout)
	for result := range pending {
		if err := out.Encode(<-result); err != nil {
			fail(err.Error())
		}
	}
}

func (r renderer) one(line string) answer {
	values, err := loader.LoadValues(strings.NewReader(line))
	if err != nil {
		return answer{Refused: err.Error()}
	}
	release := common.ReleaseOptions{Name: r.chart.Name(), Namespace: r.namespace, Revision: 1, IsInstall: true}
	complete, err := util.ToRenderValues(r.chart, values, release, nil)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	files, err := engine.Render(r.chart, complete)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	return r.config(files)
}

func (r renderer) config(files map[string]string) answer {
	var manifests = make([]struct {
		Data map[string]string `json:"data"`
	}, len(r.templates))
	for at, name := range r.templates {
		text := files[path.Join(r.chart.Name(), name)]
		if err := yaml.Unmarshal([]byte(text), &manifests[at]); err != nil {
			return answer{Broken: fmt.Sprintf("%s: %v", name, err)}
		}
	}
	return answer{Config: manifests[0].Data["config.yaml"]}
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, "configs:", message)
	os.Exit(1)
}
