package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/util/codec"
)

// typeMeta is what nodeadm adds to the configuration of a NodeConfig.
const typeMeta = `{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}`

// imageConfig has what other settings depend on of the configuration that an
// EKS image has. The host of the local cloud may have cgroups of version 1.
const imageConfig = `{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
	"kubeReservedCgroup": "/runtime", "systemReservedCgroup": "/system", "failCgroupV1": false}`

type kubeletRequest struct {
	// Arguments are the words of the command line.
	Arguments []string `json:"arguments"`
	// Config is merged with the image's configuration, as a drop-in file is.
	Config json.RawMessage `json:"config"`
}

// kubelet is what a kubelet registers its Node with.
type kubelet struct {
	Labels map[string]string `json:"labels"`
	Taints []corev1.Taint    `json:"taints"`
	// MaxPods is null unless a flag or the configuration sets it.
	MaxPods *int32 `json:"maxPods"`
}

// startKubelet follows NewKubeletCommand of k8s.io/kubernetes/cmd/kubelet/app
// up to the point where the kubelet would run.
func startKubelet(asked *kubeletRequest) (*kubelet, error) {
	flags, fromFlags, set, err := parseFlags(asked.Arguments)
	if err != nil {
		return nil, err
	}
	if err := options.ValidateKubeletFlags(flags); err != nil {
		return nil, fmt.Errorf("failed to validate kubelet flags: %w", err)
	}
	config, setsMaxPods, err := readConfig(asked.Config)
	if err != nil {
		return nil, fmt.Errorf("failed to load kubelet config file: %w", err)
	}
	// Flags take precedence: they are parsed again, into the configuration.
	gates := config.FeatureGates
	again := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	again.SetOutput(io.Discard)
	again.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	options.AddGlobalFlags(again)
	options.NewKubeletFlags().AddFlags(again)
	options.AddKubeletConfigFlags(again, config)
	if err := again.Parse(asked.Arguments); err != nil {
		return nil, fmt.Errorf("failed to precedence kubeletConfigFlag: %w", err)
	}
	for name, value := range gates {
		if _, ok := config.FeatureGates[name]; !ok {
			config.FeatureGates[name] = value
		}
	}
	features := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	for _, one := range []map[string]bool{fromFlags.FeatureGates, config.FeatureGates} {
		if err := features.SetFromMap(one); err != nil {
			return nil, fmt.Errorf("failed to set feature gates: %w", err)
		}
	}
	if err := validation.ValidateKubeletConfiguration(config, features); err != nil {
		return nil, fmt.Errorf("failed to validate kubelet configuration, error: %w", err)
	}
	started := &kubelet{Labels: flags.NodeLabels, Taints: config.RegisterWithTaints}
	if set.Changed("max-pods") || setsMaxPods {
		started.MaxPods = &config.MaxPods
	}
	return started, nil
}

func parseFlags(arguments []string) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, *pflag.FlagSet, error) {
	set := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, nil, err
	}
	flags.AddFlags(set)
	options.AddKubeletConfigFlags(set, config)
	options.AddGlobalFlags(set)
	if err := set.Parse(arguments); err != nil {
		return nil, nil, nil, fmt.Errorf("failed to parse kubelet flag: %w", err)
	}
	if rest := set.Args(); len(rest) > 0 {
		return nil, nil, nil, fmt.Errorf("unknown command %+s", rest[0])
	}
	return flags, config, set, nil
}

// readConfig merges a drop-in file with the image's configuration, and returns
// whether it sets maxPods.
func readConfig(dropIn json.RawMessage) (*kubeletconfig.KubeletConfiguration, bool, error) {
	_, codecs, err := scheme.NewSchemeAndCodecs()
	if err != nil {
		return nil, false, err
	}
	merged, setsMaxPods := []byte(imageConfig), false
	if len(dropIn) > 0 && string(dropIn) != "null" {
		typed, err := jsonpatch.MergePatch([]byte(typeMeta), dropIn)
		if err != nil {
			return nil, false, err
		}
		checked, _, err := codec.DecodeKubeletConfigurationIntoJSON(codecs, typed)
		if err != nil {
			return nil, false, err
		}
		if merged, err = jsonpatch.MergePatch(merged, checked); err != nil {
			return nil, false, err
		}
		var fields struct {
			MaxPods *int32 `json:"maxPods"`
		}
		if err := json.Unmarshal(merged, &fields); err != nil {
			return nil, false, err
		}
		setsMaxPods = fields.MaxPods != nil
	}
	config, err := codec.DecodeKubeletConfiguration(context.Background(), codecs, merged)
	return config, setsMaxPods, err
}
