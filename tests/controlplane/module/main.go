// Command controlplane is a whole Kubernetes control plane for tests in one binary.
//
// The first argument chooses the program; what follows are that program's own arguments. A link with a
// program's name is that program. One binary instead of five shares the packages that all of them link,
// in build time and on disk.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// programs maps the first argument to the function that runs that program and gives its exit code.
var programs = map[string]func(arguments []string) int{
	"etcd": runEtcd,
	"keys": runKeys,
	"kube-apiserver": runCobra(func() *cobra.Command {
		return apiserver.NewAPIServerCommand()
	}),
	"kube-controller-manager": runCobra(func() *cobra.Command {
		return controllermanager.NewControllerManagerCommand()
	}),
	"kube-scheduler": runCobra(func() *cobra.Command {
		return scheduler.NewSchedulerCommand()
	}),
	"kubectl": runKubectl,
}

func main() {
	// The programs read os.Args themselves, each its own way: show them what they would see alone.
	if own := filepath.Base(os.Args[0]); programs[own] == nil {
		os.Args = os.Args[1:]
	}
	if len(os.Args) == 0 || programs[filepath.Base(os.Args[0])] == nil {
		fmt.Fprintf(os.Stderr, "usage: controlplane %s [arguments]\n", strings.Join(names(), "|"))
		os.Exit(2)
	}
	os.Exit(programs[filepath.Base(os.Args[0])](os.Args))
}

func names() []string {
	found := make([]string, 0, len(programs))
	for name := range programs {
		found = append(found, name)
	}
	sort.Strings(found)
	return found
}

func runCobra(build func() *cobra.Command) func([]string) int {
	return func(arguments []string) int {
		command := build()
		command.SetArgs(arguments[1:])
		return cli.Run(command)
	}
}

// runEtcd never returns by itself: etcd ends the process.
func runEtcd(arguments []string) int {
	etcdmain.Main(arguments)
	return 0
}

func runKubectl(arguments []string) int {
	command := kubectl.NewDefaultKubectlCommand()
	command.SetArgs(arguments[1:])
	if err := cli.RunNoErrOutput(command); err != nil {
		util.CheckErr(err) // prints as kubectl does and exits with the code the error asks for
	}
	return 0
}
