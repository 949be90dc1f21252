// Command noop-gate holds each pod that it is asked about and releases it as soon as it sees it: the floor of any
// scheduling gate that a webhook sets and a controller removes.
//
//	noop-gate ADDRESS CERTIFICATE KEY    serve the webhook
//	noop-gate KUBECONFIG                 remove the gates
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	gate    = "bench.drawbridge.io/gate"
	hold    = `[{"op":"add","path":"/spec/schedulingGates","value":[{"name":"` + gate + `"}]}]`
	release = `{"metadata":{"annotations":{"drawbridge.io/placement":"any"}},"spec":{"schedulingGates":[]}}`
	writers = 32
)

var before, after = []byte(`"uid":"`), []byte(`"`)

func main() {
	var err error
	switch len(os.Args) {
	case 2:
		err = releaseAll(os.Args[1])
	case 4:
		err = http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], http.HandlerFunc(answer))
	default:
		err = fmt.Errorf("usage: noop-gate ADDRESS CERTIFICATE KEY | noop-gate KUBECONFIG")
	}
	fmt.Fprintln(os.Stderr, "noop-gate:", err)
	os.Exit(1)
}

func answer(to http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		return
	}
	review, err := io.ReadAll(request.Body)
	_, rest, found := bytes.Cut(review, before)
	uid, _, ended := bytes.Cut(rest, after)
	if err != nil || !found || !ended {
		http.Error(to, "no AdmissionReview", http.StatusBadRequest)
		return
	}
	to.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(to, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{"uid":"%s","allowed":true,`+
		`"patchType":"JSONPatch","patch":"%s"}}`, uid, base64.StdEncoding.EncodeToString([]byte(hold)))
}

func releaseAll(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	held := make(chan *v1.Pod, 1<<16)
	factory := informers.NewSharedInformerFactory(client, 0)
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod := object.(*v1.Pod); len(pod.Spec.SchedulingGates) == 1 && pod.Spec.SchedulingGates[0].Name == gate {
				held <- pod
			}
		},
	})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range writers {
		go func() {
			for pod := range held {
				if err := releaseOne(client, pod); err != nil {
					failed <- err
				}
			}
		}()
	}
	factory.Start(context.Background().Done())
	return <-failed
}

func releaseOne(client kubernetes.Interface, pod *v1.Pod) error {
	_, err := client.CoreV1().Pods(pod.Namespace).
		Patch(context.Background(), pod.Name, types.MergePatchType, []byte(release), metav1.PatchOptions{})
	return err
}
