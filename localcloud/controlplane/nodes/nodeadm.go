package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	"github.com/awslabs/amazon-eks-ami/nodeadm/api"
	"github.com/awslabs/amazon-eks-ami/nodeadm/api/v1alpha1"
	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// nodeConfig is what nodeadm starts the node with.
type nodeConfig struct {
	Cluster clusterDetails  `json:"cluster"`
	Flags   []string        `json:"flags"`
	Config  json.RawMessage `json:"config,omitempty"`
}

type clusterDetails struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	CA       []byte `json:"ca"`
	CIDR     string `json:"cidr"`
}

// readUserData does what nodeadm's internal packages configprovider and api
// do, which other modules cannot import: it reads the documents with the same
// libraries into nodeadm's published types, merges them and checks the result.
func readUserData(data []byte) (*nodeConfig, error) {
	documents, err := nodeConfigParts(data)
	if err != nil {
		return nil, err
	}
	merged := &nodeConfig{}
	for _, document := range documents {
		decoded, err := decode(document)
		if err != nil {
			return nil, err
		}
		if err := merged.add(&decoded.Spec); err != nil {
			return nil, err
		}
	}
	return merged, merged.validate()
}

func nodeConfigParts(data []byte) ([][]byte, error) {
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		return [][]byte{data}, nil
	}
	mediaType, parameters, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(mediaType, "multipart/") {
		return [][]byte{data}, nil
	}
	var documents [][]byte
	parts := multipart.NewReader(message.Body, parameters["boundary"])
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		header := part.Header.Get("Content-Type")
		if header == "" {
			continue
		}
		mediaType, _, err := mime.ParseMediaType(header)
		if err != nil {
			return nil, err
		}
		if mediaType != "application/"+api.GroupName {
			continue
		}
		document, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
	if len(documents) == 0 {
		return nil, errors.New("could not find NodeConfig within UserData")
	}
	return documents, nil
}

func decode(document []byte) (*v1alpha1.NodeConfig, error) {
	types := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(types); err != nil {
		return nil, err
	}
	object, kind, err := serializer.NewCodecFactory(types).UniversalDeserializer().Decode(document, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("failed to decode node config, %w", err)
	}
	decoded, ok := object.(*v1alpha1.NodeConfig)
	if !ok {
		return nil, fmt.Errorf("failed to decode %q (wrong Kind)", kind.Kind)
	}
	return decoded, nil
}

// add merges the next document: its values win, flags are appended, and the
// kubelet's configuration is merged as JSON.
func (merged *nodeConfig) add(spec *v1alpha1.NodeConfigSpec) error {
	for _, pair := range []struct {
		into *string
		from string
	}{
		{&merged.Cluster.Name, spec.Cluster.Name},
		{&merged.Cluster.Endpoint, spec.Cluster.APIServerEndpoint},
		{&merged.Cluster.CIDR, spec.Cluster.CIDR},
	} {
		if pair.from != "" {
			*pair.into = pair.from
		}
	}
	if len(spec.Cluster.CertificateAuthority) > 0 {
		merged.Cluster.CA = spec.Cluster.CertificateAuthority
	}
	merged.Flags = append(merged.Flags, spec.Kubelet.Flags...)
	if len(spec.Kubelet.Config) == 0 {
		return nil
	}
	config, err := json.Marshal(spec.Kubelet.Config)
	if err != nil {
		return err
	}
	if merged.Config != nil {
		config, err = jsonpatch.MergeMergePatches(merged.Config, config)
	}
	merged.Config = config
	return err
}

func (merged *nodeConfig) validate() error {
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"Name", merged.Cluster.Name == ""},
		{"Apiserver endpoint", merged.Cluster.Endpoint == ""},
		{"Certificate authority", merged.Cluster.CA == nil},
		{"CIDR", merged.Cluster.CIDR == ""},
	} {
		if field.missing {
			return fmt.Errorf("%s is missing in cluster configuration", field.name)
		}
	}
	return nil
}
