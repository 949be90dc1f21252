// Command calico-ipam runs Calico's own address allocator against a cluster, one verb a call, JSON out.
//
//	calico-ipam pool CIDR [--block-size N]
//	calico-ipam assign N --node NODE [--handle H]
//	calico-ipam assign IP --node NODE [--handle H]
//	calico-ipam release IP...
//	calico-ipam list
//
// Each takes --kubeconfig FILE (default: $KUBECONFIG). Exit codes: 0 done, 1 refused or failed, 2 wrong usage,
// 3 the allocator panicked. Failures are {"error": ...}, panics {"panic": ...}.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	v3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	backend "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	calico "github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitPanic  = 3
	timeout    = 60 * time.Second
)

var errUsage = errors.New("usage")

type arguments struct {
	verb, kubeconfig, node, handle string
	positional                     []string
	blockSize                      int
}

type verb func(context.Context, calico.Interface, arguments) (any, error)

var verbs = map[string]verb{"pool": pool, "assign": assign, "release": release, "list": list}

func main() {
	logrus.SetOutput(io.Discard) // a panic by the logger still carries its text
	os.Exit(run(os.Args[1:]))
}

func run(args []string) (code int) {
	defer func() {
		if reason := recover(); reason != nil {
			show(map[string]any{"panic": panicText(reason)})
			code = exitPanic
		}
	}()
	result, err := call(args)
	if err != nil {
		show(map[string]any{"error": err.Error()})
		if errors.Is(err, errUsage) {
			return exitUsage
		}
		return exitFailed
	}
	show(result)
	return 0
}

func call(args []string) (any, error) {
	parsed, err := parse(args)
	if err != nil {
		return nil, err
	}
	do, known := verbs[parsed.verb]
	if !known {
		return nil, fmt.Errorf("%w: verb %q is not pool, assign, release or list", errUsage, parsed.verb)
	}
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType = apiconfig.Kubernetes
	config.Spec.Kubeconfig = parsed.kubeconfig
	client, err := calico.New(*config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx, client, parsed)
}

// parse lets flags and positional arguments come in any order, as kubectl does.
func parse(args []string) (arguments, error) {
	var a arguments
	flags := flag.NewFlagSet("calico-ipam", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&a.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "")
	flags.StringVar(&a.node, "node", "", "")
	flags.StringVar(&a.handle, "handle", "", "")
	flags.IntVar(&a.blockSize, "block-size", 26, "")
	for rest := args; ; {
		if err := flags.Parse(rest); err != nil {
			return a, fmt.Errorf("%w: %v", errUsage, err)
		}
		if flags.NArg() == 0 {
			break
		}
		a.positional, rest = append(a.positional, flags.Arg(0)), flags.Args()[1:]
	}
	if len(a.positional) > 0 {
		a.verb, a.positional = a.positional[0], a.positional[1:]
	}
	return a, nil
}

func pool(ctx context.Context, client calico.Interface, a arguments) (any, error) {
	if len(a.positional) != 1 {
		return nil, fmt.Errorf("%w: pool CIDR [--block-size N]", errUsage)
	}
	cidr := a.positional[0]
	spec := v3.IPPoolSpec{CIDR: cidr, BlockSize: a.blockSize, IPIPMode: v3.IPIPModeNever,
		VXLANMode: v3.VXLANModeNever, NodeSelector: "all()"}
	name := "pool-" + strings.NewReplacer(".", "-", "/", "-", ":", "-").Replace(cidr)
	wanted := &v3.IPPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	made, err := client.IPPools().Create(ctx, wanted, options.SetOptions{})
	if err != nil {
		return nil, err
	}
	return map[string]any{"pool": made.Name, "cidr": made.Spec.CIDR, "blockSize": made.Spec.BlockSize}, nil
}

// assign may give fewer addresses than asked for: that is no failure, "messages" says why.
func assign(ctx context.Context, client calico.Interface, a arguments) (any, error) {
	if ip := net.ParseIP(strings.Join(a.positional, " ")); ip != nil && a.node != "" {
		return assignOne(ctx, client, ip, a)
	}
	number, err := strconv.Atoi(strings.Join(a.positional, " "))
	if err != nil || number < 1 || a.node == "" {
		return nil, fmt.Errorf("%w: assign N --node NODE [--handle H], N at least 1", errUsage)
	}
	args := ipam.AutoAssignArgs{Num4: number, Hostname: a.node, IntendedUse: v3.IPPoolAllowedUseWorkload,
		Attrs: map[string]string{ipam.AttributeNode: a.node}}
	if a.handle != "" {
		args.HandleID = &a.handle
	}
	given, _, err := client.IPAM().AutoAssign(ctx, args)
	if err != nil {
		return nil, err
	}
	addresses := []string{}
	for _, network := range given.IPs {
		addresses = append(addresses, network.IP.String())
	}
	messages := append([]string{}, given.Msgs...)
	return map[string]any{"node": a.node, "requested": number, "assigned": addresses, "messages": messages}, nil
}

// assignOne asks for an address as the CNI plugin does for a pod with the annotation ipAddrs.
func assignOne(ctx context.Context, client calico.Interface, ip net.IP, a arguments) (any, error) {
	args := ipam.AssignIPArgs{IP: cnet.IP{IP: ip}, Hostname: a.node, Attrs: map[string]string{ipam.AttributeNode: a.node}}
	if a.handle != "" {
		args.HandleID = &a.handle
	}
	if err := client.IPAM().AssignIP(ctx, args); err != nil {
		return nil, err
	}
	return map[string]any{"node": a.node, "requested": 1, "assigned": []string{ip.String()}, "messages": []string{}}, nil
}

func release(ctx context.Context, client calico.Interface, a arguments) (any, error) {
	if len(a.positional) == 0 {
		return nil, fmt.Errorf("%w: release IP...", errUsage)
	}
	var wanted []ipam.ReleaseOptions
	for _, address := range a.positional {
		wanted = append(wanted, ipam.ReleaseOptions{Address: address})
	}
	missing, err := client.IPAM().ReleaseIPs(ctx, wanted...)
	if err != nil {
		return nil, err
	}
	unallocated, absent := []string{}, map[string]bool{}
	for _, ip := range missing {
		unallocated, absent[ip.String()] = append(unallocated, ip.String()), true
	}
	released := []string{}
	for _, address := range a.positional {
		if !absent[address] {
			released = append(released, address)
		}
	}
	return map[string]any{"released": released, "unallocated": unallocated}, nil
}

func list(ctx context.Context, client calico.Interface, _ arguments) (any, error) {
	store := client.(interface{ Backend() backend.Client }).Backend()
	blocks, err := store.List(ctx, model.BlockListOptions{}, "")
	if err != nil {
		return nil, err
	}
	allocations := []map[string]any{}
	for _, pair := range blocks.KVPairs {
		allocations = append(allocations, allocated(pair.Value.(*model.AllocationBlock))...)
	}
	return map[string]any{"allocations": allocations}, nil
}

func allocated(block *model.AllocationBlock) (found []map[string]any) {
	for ordinal, attribute := range block.Allocations {
		if attribute == nil {
			continue
		}
		held := block.Attributes[*attribute]
		found = append(found, map[string]any{"ip": block.OrdinalToIP(ordinal).String(), "block": block.CIDR.String(),
			"node": held.AttrSecondary[ipam.AttributeNode], "handle": held.AttrPrimary})
	}
	return found
}

func panicText(reason any) string {
	if entry, ok := reason.(*logrus.Entry); ok {
		return fmt.Sprintf("%s %v", entry.Message, entry.Data)
	}
	return fmt.Sprint(reason)
}

func show(value any) {
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
