import static java.nio.charset.StandardCharsets.UTF_8;

import org.eclipse.paho.mqttv5.client.IMqttToken;
import org.eclipse.paho.mqttv5.client.MqttAsyncClient;
import org.eclipse.paho.mqttv5.client.MqttCallback;
import org.eclipse.paho.mqttv5.client.MqttConnectionOptions;
import org.eclipse.paho.mqttv5.client.MqttDisconnectResponse;
import org.eclipse.paho.mqttv5.client.persist.MemoryPersistence;
import org.eclipse.paho.mqttv5.common.MqttException;
import org.eclipse.paho.mqttv5.common.MqttMessage;
import org.eclipse.paho.mqttv5.common.packet.MqttProperties;

/** Paho Java: 5.0. */
final class PahoFive extends Peer implements MqttCallback {
    private static final long PATIENCE_MS = PATIENCE_S * 1_000L;

    private MqttAsyncClient client;

    @Override
    boolean connect(Place place, String name, boolean clean, String will) throws Exception {
        client = new MqttAsyncClient(place.uri(), place.topic() + "-" + name, new MemoryPersistence());
        client.setCallback(this);
        var options = new MqttConnectionOptions();
        options.setCleanStart(clean);
        options.setSessionExpiryInterval(clean ? 0L : KEPT_S);
        if (will != null) {
            options.setWill(will, new MqttMessage("gone".getBytes(UTF_8), 1, false, null));
        }
        var token = client.connect(options);
        token.waitForCompletion(PATIENCE_MS);
        return token.getSessionPresent();
    }

    @Override
    void subscribe(String filter, int qos) throws Exception {
        client.subscribe(filter, qos).waitForCompletion(PATIENCE_MS);
    }

    @Override
    void publish(Message one) throws Exception {
        byte[] payload = one.payload().getBytes(UTF_8);
        client.publish(one.topic(), payload, one.qos(), one.retain()).waitForCompletion(PATIENCE_MS);
    }

    @Override
    void close() throws Exception {
        client.disconnect().waitForCompletion(PATIENCE_MS);
        client.close();
    }

    @Override
    public void messageArrived(String topic, MqttMessage one) {
        inbox.add(new Message(topic, new String(one.getPayload(), UTF_8), one.getQos(), one.isRetained()));
    }

    @Override
    public void disconnected(MqttDisconnectResponse response) {}

    @Override
    public void mqttErrorOccurred(MqttException error) {}

    @Override
    public void deliveryComplete(IMqttToken token) {}

    @Override
    public void connectComplete(boolean again, String uri) {}

    @Override
    public void authPacketArrived(int reason, MqttProperties properties) {}
}
