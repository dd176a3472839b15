"""The built-in kinds of Kubernetes 1.30 to 1.37, by tests/generate/kubernetes_schemas.py."""

# ruff: noqa: E501 -- one row a line

# API version, `n` (in namespaces) or `c` (of the cluster), first and last minor version that serve the kinds
BUILTIN = """\
v1 c 30-37 ComponentStatus Namespace Node PersistentVolume
v1 n 30-37 ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
admissionregistration.k8s.io/v1 c 36-37 MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1 c 30-37 MutatingWebhookConfiguration ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
admissionregistration.k8s.io/v1alpha1 c 32-37 MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1alpha1 c 30-31 ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1beta1 c 34-37 MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
admissionregistration.k8s.io/v1beta1 c 30-33 ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
apiextensions.k8s.io/v1 c 30-37 CustomResourceDefinition
apiregistration.k8s.io/v1 c 30-37 APIService
apps/v1 n 30-37 ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
autoscaling/v1 n 30-37 HorizontalPodAutoscaler
autoscaling/v2 n 30-37 HorizontalPodAutoscaler
batch/v1 n 30-37 CronJob Job
certificates.k8s.io/v1 c 30-37 CertificateSigningRequest
certificates.k8s.io/v1 c 37-37 ClusterTrustBundle
certificates.k8s.io/v1 n 37-37 PodCertificateRequest
certificates.k8s.io/v1alpha1 c 30-36 ClusterTrustBundle
certificates.k8s.io/v1alpha1 n 34-34 PodCertificateRequest
certificates.k8s.io/v1beta1 c 33-37 ClusterTrustBundle
certificates.k8s.io/v1beta1 n 35-37 PodCertificateRequest
coordination.k8s.io/v1 n 30-37 Lease
coordination.k8s.io/v1alpha1 n 31-31 LeaseCandidate
coordination.k8s.io/v1alpha2 n 32-37 LeaseCandidate
coordination.k8s.io/v1beta1 n 33-37 LeaseCandidate
discovery.k8s.io/v1 n 30-37 EndpointSlice
events.k8s.io/v1 n 30-37 Event
flowcontrol.apiserver.k8s.io/v1 c 30-37 FlowSchema PriorityLevelConfiguration
flowcontrol.apiserver.k8s.io/v1beta3 c 30-31 FlowSchema PriorityLevelConfiguration
internal.apiserver.k8s.io/v1alpha1 c 30-37 StorageVersion
lifecycle.k8s.io/v1alpha1 n 37-37 Eviction EvictionRequest
networking.k8s.io/v1 c 33-37 IPAddress ServiceCIDR
networking.k8s.io/v1 n 30-37 Ingress NetworkPolicy
networking.k8s.io/v1 c 30-37 IngressClass
networking.k8s.io/v1alpha1 c 30-30 IPAddress ServiceCIDR
networking.k8s.io/v1beta1 c 31-36 IPAddress ServiceCIDR
node.k8s.io/v1 c 30-37 RuntimeClass
policy/v1 n 30-37 PodDisruptionBudget
rbac.authorization.k8s.io/v1 c 30-37 ClusterRole ClusterRoleBinding
rbac.authorization.k8s.io/v1 n 30-37 Role RoleBinding
resource.k8s.io/v1 c 34-37 DeviceClass ResourceSlice
resource.k8s.io/v1 c 37-37 DeviceTaintRule
resource.k8s.io/v1 n 34-37 ResourceClaim ResourceClaimTemplate
resource.k8s.io/v1alpha2 n 30-30 PodSchedulingContext ResourceClaim ResourceClaimParameters ResourceClaimTemplate ResourceClassParameters
resource.k8s.io/v1alpha2 c 30-30 ResourceClass ResourceSlice
resource.k8s.io/v1alpha3 c 31-33 DeviceClass ResourceSlice
resource.k8s.io/v1alpha3 c 33-37 DeviceTaintRule
resource.k8s.io/v1alpha3 n 31-31 PodSchedulingContext
resource.k8s.io/v1alpha3 n 31-33 ResourceClaim ResourceClaimTemplate
resource.k8s.io/v1alpha3 c 36-37 ResourcePoolStatusRequest
resource.k8s.io/v1beta1 c 32-37 DeviceClass ResourceSlice
resource.k8s.io/v1beta1 n 32-37 ResourceClaim ResourceClaimTemplate
resource.k8s.io/v1beta2 c 33-37 DeviceClass ResourceSlice
resource.k8s.io/v1beta2 c 36-37 DeviceTaintRule
resource.k8s.io/v1beta2 n 33-37 ResourceClaim ResourceClaimTemplate
scheduling.k8s.io/v1 c 30-37 PriorityClass
scheduling.k8s.io/v1alpha1 n 35-35 Workload
scheduling.k8s.io/v1alpha2 n 36-36 PodGroup Workload
scheduling.k8s.io/v1alpha3 n 37-37 CompositePodGroup PodGroup Workload
scheduling.k8s.io/v1beta1 n 37-37 PodGroup Workload
storage.k8s.io/v1 c 30-37 CSIDriver CSINode StorageClass VolumeAttachment
storage.k8s.io/v1 n 30-37 CSIStorageCapacity
storage.k8s.io/v1 c 34-37 VolumeAttributesClass
storage.k8s.io/v1alpha1 c 30-34 VolumeAttributesClass
storage.k8s.io/v1beta1 c 31-36 VolumeAttributesClass
storagemigration.k8s.io/v1 c 37-37 StorageVersionMigration
storagemigration.k8s.io/v1alpha1 c 30-34 StorageVersionMigration
storagemigration.k8s.io/v1beta1 c 35-37 StorageVersionMigration
"""
